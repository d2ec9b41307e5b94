// Rematerialization as Python sees it: what AOTAutograd's joint graph keeps for the backward.
//
//   node = _engine.JointNode(
//       name: str,               # of the FX node
//       target: str,             # "aten.mm.default", "_c10d_functional.wait_tensor.default",
//                                # "getitem", "placeholder:primal", "placeholder:tangent",
//                                # "get_attr", "output"; of a higher-order operator its name
//       inputs: list[int] = [],  # positions of the nodes that it reads; of the output node all
//                                # outputs, the forward's first; None among them as -1
//       bytes: int = 0,          # of its tensor with hinted sizes; 0 for none, several, sizes
//       shape: list[int] = [],   # hinted; [] where bytes is 0
//       dtype: str = "",         # "bfloat16", …
//       *, view=False,           # its value lies in its first input's storage
//       random=False,            # draws random numbers, or is a seed
//       mutates=False,           # writes to an argument
//       causal=False,            # an attention that was called with is_causal=True
//       tagged=False,            # meta["recompute"] is the user's own
//       parameter=False,         # a primal that lives on whatever is kept: parameters, buffers
//       source: str = "")        # the model's line, for reports
//   graph = _engine.JointGraph(nodes, forward_outputs: int)
//   graph.text -> str            # one node a line; _engine.parse_joint_graph(text) reads it back
//
//   plan = graph.plan(policy="sac", *, device="h100", ranks=1, memory_bytes=0, overhead=0.0)
//       policy: "off", "sac", "sac+exchanges", "full", "auto", "memory" (the fastest plan whose
//       peak is at most memory_bytes, as "auto" is), "overhead" (the least peak for at most
//       `overhead` of the step's estimated time more). Raises Unsupported for a budget below the
//       least, an unknown device or policy.
//   plan.actions -> list[int]    # per node: 0 leave, 1 save (MUST_SAVE), 2 MUST_RECOMPUTE
//   plan.segments -> int         # segments that are recomputed on their own
//   plan.kept_bytes, plan.peak_bytes, plan.peak_at (a node's name), plan.recompute_ns,
//   plan.step_ns (with the recomputation), plan.rows (what, kept, recomputed, count, source),
//   str(plan)
//   graph.simulate(saved: list[int]) -> Peak with kept_bytes, peak_bytes, peak_at: of a partition
//       that keeps these nodes, such as the stock partitioner's; everything else is recomputed.
//   graph.frontier(*, device="h100", ranks=1) -> list of points with kept_bytes, peak_bytes,
//       recompute_ns, step_ns, from the smallest peak to the fastest.
