"""Production code against a simulated world: store, tables, clock, and a scheduler that decides who runs and what fails.

What runs as it is: the ledger, the reconcile loop and its rules, both commit protocols, planning, the staging task. What is
simulated: the store, the tables, processes, time. The checks look at the table and the store, never at what the product says.

    choices      where decisions come from: hypothesis, a seed, or none (always the dullest)
    scheduler    actors in lockstep, one port call at a time; crashes, pauses, zombies
    store, tables, source, drivers     the ports
    actors       runners, drivers, task tries
    world        one table, some writes, and all of the above
    chaos        the adversary; then faults stop and a fresh runner must end
    checks       the invariants
    museum       planted bugs, which the checks must catch
"""
