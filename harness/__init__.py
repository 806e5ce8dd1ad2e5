"""Everything that runs on one machine: the workload, the plan, the runner and its workers."""
