// patch_table: change single entries of a table on the device, in the order of the stream.
//
// Computes   table[row[i], column[i]] = value[i]   for n patches
// Threads    one thread a patch
// Constants  ENTRY: int32 or int64, the type of the table's entries
//
// A block table, a slot mapping or an array of lengths that a queued kernel will read must not be changed in place from
// the host. A patch is a launch like any other: kernels queued before it see the old entries, those behind it the new.
// A patch that lies outside the table, a negative row included, is skipped.
typedef int int32;
typedef long long int64;

extern "C" __global__ void patch_table(
    ENTRY* table,  // [rows, columns], the rows row_stride apart
    int64 row_stride,
    int64 rows,
    int64 columns,
    const int64* patches,  // [n, 3] row, column, value
    int64 n) {
    const int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;  // guard: the last block has more threads than patches are left
    const int64 row = patches[3 * i], column = patches[3 * i + 1];
    if (row < 0 || row >= rows || column < 0 || column >= columns) return;  // guard: no entry of this table
    table[row * row_stride + column] = (ENTRY)patches[3 * i + 2];
}
