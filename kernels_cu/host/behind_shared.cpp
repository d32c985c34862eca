// Linked behind each kernel, so that these bytes lie behind its shared arrays.
#include "shared_edges.h"

__thread unsigned char pagewalk_behind_shared[pagewalk::BEHIND_SHARED];
