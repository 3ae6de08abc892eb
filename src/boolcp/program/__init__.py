"""The Boolean quadratic program, max z'Cz or z'Cz / |z|^2 over 0/1 vectors z. It knows nothing about tensors."""
