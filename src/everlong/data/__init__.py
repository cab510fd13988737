"""From text to batches: documents, tokenizers, corpora, the split, and the orders in which training reads them."""
