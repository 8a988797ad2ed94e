from glassformer.cli import main

main()
