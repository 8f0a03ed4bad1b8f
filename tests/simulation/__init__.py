"""Production code against a simulated world: store, tables, clock, and a scheduler that decides who runs and what fails.

What runs as it is: the ledger, the reconcile loop and its rules, both commit protocols, planning, the staging task. What is
simulated: the store, the tables, processes, time. The checks look at the table and the store, never at what the product says.

    choices                where decisions come from: hypothesis, a seed, or none (always the dullest)
    scheduler, turns       actors in lockstep, one port call at a time: crashes, pauses, zombies
    store, tables, iceberg_table, iceberg_port, lance_table, source      the ports
    parts                  what is under test, piece by piece
    world                  one table, some writes, and all of the above
    runners, drivers       actors: the production loop, the production tasks
    merging                what drivers of the merges of an upsert do
    deleters               actors: the production deletion
    faults, chaos         the adversary; then faults stop and a fresh runner must end
    deaths                 one death at one place, enumerated
    checks                 the invariants
    mutants                planted bugs, which the checks must catch
    profile                how long to search: CHECKPOINTED_WRITES_SIMULATION=long
"""
