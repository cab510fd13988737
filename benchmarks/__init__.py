"""How fast Everlong is, as ratios against peers and floors: `python -m benchmarks`; see docs/performance.md."""
