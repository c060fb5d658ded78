// Reads and checks a gate's file: safetensors with the metadata format, format_version, config, notice and digest
// (docs/gate.md, "A gate's file").
#pragma once

#include "format/source.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/text/detail/gate_parts.hpp"

namespace kaiju {

// kBadModel names the field or tensor and the rule; kUnsupported means another version.
Status read_gate(const format::Source& file, GateParts& out);

}  // namespace kaiju
