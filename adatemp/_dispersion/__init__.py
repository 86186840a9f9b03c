"""What `adatemp.dispersion` offers beyond the bounds on weights and entropies, one idea a module."""
