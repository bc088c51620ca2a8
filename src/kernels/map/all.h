// Every functor of maps.inc, for those who make a kernel of each.
#pragma once

#include "kernels/map/data_gather.h"
#include "kernels/map/fill.h"
#include "kernels/map/ops_check.h"
#include "kernels/map/ops_embedding.h"
#include "kernels/map/ops_linear.h"
#include "kernels/map/ops_loss.h"
#include "kernels/map/ops_norm.h"
#include "kernels/map/optim_finish.h"
#include "kernels/map/quant_backward.h"
#include "kernels/map/quant_exact.h"
#include "kernels/map/quant_integers.h"
#include "kernels/map/quant_learned.h"
#include "kernels/map/quant_observe.h"
#include "kernels/map/quant_ranges.h"
#include "kernels/map/quant_scales.h"
#include "kernels/map/tensor_gradient.h"
