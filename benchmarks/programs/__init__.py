"""Programs after TensorFlow's documents, tested and measured as they are. None knows this package.

Each trains in a folder and returns what a user would see. Initializers have a seed of their own:
TensorFlow derives others from the number of ops in a graph.
"""
