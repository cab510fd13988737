"""The orders in which training reads a corpus."""

from everlong.registry import Registry

# name -> class(corpus, *, length, batch_size, seed) with what a TextSource has; the name is its data_order
DATA_ORDERS = Registry(
    "data order",
    {
        "contiguous": "everlong.data.contiguous_streams:ContiguousStreams",
        "packed": "everlong.data.packed_documents:PackedDocuments",
        "shuffled": "everlong.data.shuffled_chunks:ShuffledChunks",
    },
)
