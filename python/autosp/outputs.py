"""Outputs as the user gets them."""

from torch.distributed.tensor import DTensor, Shard


def as_dtensors(results, dims, mesh_for):
    """`results` with every tensor that is sharded along a dimension (`dims`, None for the others)
    as a DTensor; `mesh_for(tensor)` is its mesh. The gradient of a DTensor's part is the part of
    its gradient.
    """
    return tuple(
        result
        if dim is None
        else DTensor.from_local(result, mesh_for(result), [Shard(dim)], run_check=False)
        for result, dim in zip(results, dims, strict=True)
    )
