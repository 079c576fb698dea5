"""Reports, tables, comparisons and plots of evaluation results."""
