// Plans as Python sees them.
//
// What this file uses of passes/pipeline.h:
//   struct Options {
//     int64_t ranks = 1;
//     std::string attention = "auto";            // refused by plan() when unknown
//     std::string outputs = "auto";              // auto | full | local
//     bool grad_sync = true;
//     std::map<std::string, int64_t> seq_dims;   // user-visible input name -> dimension; checked by plan()
//     std::string print;                         // AUTOSP_PRINT: "", "all" or a step's name
//   };
//   struct OutputInfo { bool sharded; int64_t dim; Expr size; };   // one per entry of Graph::outputs
//   struct Plan {
//     Graph graph;                               // per rank; the rank is the size symbol kRankSymbol, the process
//                                                // group's name is Arg::literal_of("group"): both known at export only
//     std::vector<OutputInfo> outputs;
//     std::vector<Expr> divisible;               // each must be 0 modulo `ranks`: a guard of the compiled code
//     std::string hash;                          // of the program's text and the options, the same on every rank
//     Report report;                             // std::string Report::text() const, plus what the lead wants seen
//   };
//   Plan plan(const Graph& imported, const Options& options);
// Contract of the exported graph: Node::origin of an input is the FX placeholder it came from (inputs may be dropped,
// never added); a call keeps its FX node when its origin's callable still has the name `target`, otherwise a node
// is made: "torch.a.b" calls that object, "_operator.x" Python's operator, "Tensor.x" the method, "autosp.x"
// torch.ops.autosp.x. A literal argument must be one that was imported, "group", or a dotted torch name
// ("torch.float32").
