"""Recipes: how the paper's figures and the bundled model are made, each from one typed configuration."""
