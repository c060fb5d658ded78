// Calibration of the scales of keys and values, and sets of them in files (docs/operations.md, "Calibration").
#pragma once

#include "kaiju/engine/calibration.hpp"
#include "kaiju/format/scales.hpp"
