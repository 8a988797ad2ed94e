"""glass env"""

from glassformer import machine
from glassformer.cli import flags
from glassformer.cli.printing import out, print_json, size


@flags.verb
@flags.switch("--probe", help="Try bf16 again, even if the answer is known.")
@flags.as_json
def env(probe: bool, as_json: bool) -> None:
    """What this machine is and can do: versions, cores, instruction sets, bf16, engine; what is kept at home.

    \b
    glass env            a table; the first time, bf16 is tried in a child process (some seconds)
    glass env --json     the same, as data

    Below the table: what lies in ~/.glassformer (GLASSFORMER_HOME), how large it is, and what may be deleted.
    """
    from glassformer.tasks.backends import status

    if probe:
        machine.bf16(probe_again=True)
    facts = machine.describe() | {"engine": status()}
    kept = machine.kept_at_home()
    if as_json:
        print_json({name.replace(" ", "_"): fact for name, fact in facts.items()} | {"home": kept})
        return

    facts["instruction sets"] = " ".join(facts["instruction sets"]) or "not known on this system"
    memory = facts["memory available"]
    known = memory != machine.UNKNOWN
    facts["memory available"] = f"{memory / 1e9:.1f} GB" if known else "not known on this system"
    width = max(map(len, facts))
    out(*(f"{name:<{width}}  {fact}" for name, fact in facts.items()))

    out("", "Kept at home:")
    wide = max(len(one["folder"]) for one in kept)
    for one in kept:
        deletable = "may be deleted" if one["may_be_deleted"] else "yours"
        out(f"{one['folder']:<{wide}}  {size(one['size']):>9}  {deletable}: {one['what']}")
