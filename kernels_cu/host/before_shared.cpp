// Linked before each kernel, so that these bytes lie before its shared arrays.
#include "shared_edges.h"

__thread unsigned char pagewalk_before_shared[pagewalk::BEFORE_SHARED];
