#include "core/cluster/keys.h"

/* the file */
const struct document_key cluster_keys[] = {
    {"version", "1", NULL, "version of the format"},
    {"name", "text", NULL, "name of the cluster; profiles are stored under it"},
    {"nccl", "2.28.9 or 2.30", "none: collectives are priced by their messages on the links",
     "NCCL version whose cost model prices collectives of NVIDIA GPUs that no measured table prices"},
    {"device_types", "list of maps", NULL, "device types"},
    {"nodes", "list of maps", NULL, "hosts and their devices"},
    {"links", "list of maps", "none", "links between devices, nodes and switches"},
    {"switches", "list of maps", "none", "switches (PCIe, NVLink, network), possible ends of links"},
    {0}};

/* an entry of device_types */
const struct document_key cluster_type_keys[] = {
    {"name", "text", NULL, "name that nodes refer to"},
    {"device", "catalogue id", NULL,
     "device of the catalogue (docs/reference/devices.md), e.g. A100-SXM4-80 or host"},
    {"slowdown", "number from 1", "none: a real device",
     "emulated device: operator times are multiplied by it"},
    {"multiprocessors", "number", "all",
     "multiprocessors of a GPU that an emulated device uses (CUDA green context)"},
    {"memory", "size", "the catalogue's", "memory of the device, e.g. 24 GB or 16 GiB"},
    {"peak", "map of dtypes", "the catalogue's",
     "dense peak FLOP/s by dtype, e.g. {bf16: 165 TFLOP/s, fp32: 40 TFLOP/s}; measured costs go "
     "before it"},
    {"memory_bandwidth", "rate", "the catalogue's",
     "bandwidth of the device's memory, e.g. 768 GB/s; measured costs go before it"},
    {"power", "watts", "the catalogue's", "power of one device under load, e.g. 300 W"},
    {"reserve", "size", "what the catalogue states",
     "memory that tensors may not use: driver context, kernels, NCCL buffers"},
    {"price", "money/h", "none",
     "price of one GPU of the type per hour, e.g. 3.2/h (0/h: free), in any currency, the same in the whole file; costs are sums of "
     "it over time"},
    {"parameter_copies", "number", "0",
     "additional copies of every parameter that a framework keeps, in the type of the optimizer "
     "state"},
    {"offload", "optimizer, activations, or a list", "none",
     "optimizer: the optimizer's state is in host memory, and updates access it over PCIe; not with local_sgd, parameter_server, and "
     "the optimizers lamb and lars. activations: searches may offload a stage's activations (`offload` of a plan's stage)"},
    {"host_bandwidth", "rate", "the catalogue's PCIe bandwidth",
     "bandwidth of copies between the device and page-locked host memory, in each direction, e.g. 24 GB/s; an emulated device whose "
     "stages offload activations needs it"},
    {0}};

/* `peak` of a device type */
const struct document_key cluster_peak_keys[] = {
    {"fp64", "FLOP/s", "the catalogue's", "peak of fp64, matrix units included"},
    {"fp32", "FLOP/s", "the catalogue's", "peak of fp32 without TF32; a job of precision fp32"},
    {"tf32", "FLOP/s", "the catalogue's", "peak of TF32; no cost of a job depends on it"},
    {"fp16", "FLOP/s", "the catalogue's", "peak of fp16 products that are summed in fp32"},
    {"bf16", "FLOP/s", "the catalogue's", "peak of bf16 products that are summed in fp32"},
    {"fp8", "FLOP/s", "the catalogue's", "peak of fp8; no cost of a job depends on it"},
    {0}};

/* an entry of nodes */
const struct document_key cluster_node_keys[] = {
    {"name", "text", NULL, "name of the node; its devices are NAME.0, NAME.1 and so on"},
    {"count", "number", "one node without number", "number of equal nodes, NAME0, NAME1 and so on"},
    {"host", "text", "localhost", "host name; with count it is numbered likewise"},
    {"devices", "list of maps, or map", NULL, "devices of the node"},
    {0}};

/* an entry of devices */
const struct document_key cluster_device_keys[] = {
    {"type", "text", NULL, "name of a device type"},
    {"index", "number", "that of the previous device + 1", "local device number (CUDA ordinal)"},
    {"count", "number", "1", "number of equal devices, with consecutive indices"},
    {0}};

/* an entry of links */
const struct document_key cluster_link_keys[] = {
    {"name", "text", NULL, "name of the link; profiles store its measurements under it"},
    {"between", "[END] or [END, END]", "required without every",
     "ends: nodes, devices (NODE.INDEX) or switches; one node: between its devices, which share the link"},
    {"every", "inside or across", "none",
     "one link per pair of devices of a node (inside) or of different nodes (across), instead of "
     "between"},
    {"bandwidth", "rate", "measured by `musher profile`",
     "bandwidth of one direction, e.g. 25 GB/s; required for emulated devices and switches"},
    {"latency", "time", "measured by `musher profile`",
     "one-way latency, e.g. 5 us; stated together with bandwidth"},
    {"duplex", "full or half", "full",
     "full: each direction has the bandwidth; half: both share it"},
    {"sharing", "fifo, fair or fluid", "fifo",
     "concurrent messages: one after the other; max-min fair shares between channels; fair shares "
     "within a channel too"},
    {"overlap", "true or false", "true",
     "false: transfers occupy the compute streams of both ends"},
    {"compute_slowdown", "number", "0",
     "slowdown of operators at both ends while a message passes, e.g. 0.13 for 13 %"},
    {"maxCTAs", "number from 1 to 64", "NCCL's choice",
     "thread blocks of NCCL kernels on this link"},
    {"netName", "text", "NCCL's choice",
     "network that NCCL uses, as in NCCL_NET: IB, Socket or a plugin"},
    {0}};

/* an entry of switches */
const struct document_key cluster_switch_keys[] = {
    {"name", "text", NULL,
     "name of the switch; with count: N there are N of them, NAME0, NAME1 and so on"},
    {0}};
