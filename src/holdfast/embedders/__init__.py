"""What turns items into vectors: sources of images and vectors, their decoding, and embedding into memory or shards."""
