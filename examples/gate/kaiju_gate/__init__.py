"""What a model must pass before it serves: figures with intervals, limits on them, and an exit code.

`main` is the command line; `rates` has the statistics, `sets` the input files, `scoring` the engine, `rules` the limits
on figures, `report` and `plots` the output. Each command has a file of its own."""
