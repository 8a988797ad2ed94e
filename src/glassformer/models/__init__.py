"""One file per article. A model owns its wiring; the equations are shared, in `nn/`."""
