"""The run wing. `controller/`, `agent/` and `worker/` each hold what one kind of process runs, and a rule of their own.

The modules beside these folders may run in any of the processes and import none of the folders: the deciders
(`schedule`, `verdict`, `quarantine`, `outcome`), what travels (`wire`, `messages`, `starts`), the journal, and
`pytest_inside`, the one module that leans on pytest's insides.
"""
