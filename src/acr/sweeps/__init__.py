"""Many runs: recipes, sweeps, the engines that execute them, and estimates of their cost."""
