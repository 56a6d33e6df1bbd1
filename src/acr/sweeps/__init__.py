"""Many runs: recipes, the sweep over them, the engines that carry it out, and what it will cost."""
