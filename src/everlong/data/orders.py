"""The orders in which training reads a corpus; the seam for packed documents."""

from everlong.registry import Registry

# name -> class(corpus, *, length, batch_size, seed) with batch(step) -> Batch; the name is its data_order
DATA_ORDERS = Registry(
    "data order",
    {
        "contiguous": "everlong.data.contiguous_streams:ContiguousStreams",
        "shuffled": "everlong.data.shuffled_chunks:ShuffledChunks",
    },
)
