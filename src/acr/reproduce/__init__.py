"""The paper's tables and figures, from runs, with the printed values beside ours."""
