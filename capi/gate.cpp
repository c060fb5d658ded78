// The C interface of MessageGate.
#include "handles.hpp"

using kaiju::Status;
using kaiju::StatusCode;
using namespace kaiju::capi;

kaiju_status kaiju_gate_load(const char* path, kaiju_gate** out, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!path || !out) return missing(path ? "out" : "path");
    auto gate = kaiju::MessageGate::load(path);
    if (!gate.ok()) return gate.status();
    *out = new kaiju_gate{std::move(gate).value()};
    return {};
  });
}

void kaiju_gate_destroy(kaiju_gate* gate) { delete gate; }

size_t kaiju_gate_label_count(const kaiju_gate* gate) {
  return gate ? gate->gate->labels().size() : 0;
}

kaiju_status kaiju_gate_label(const kaiju_gate* gate, size_t index, const char** text,
                              size_t* size) {
  return guard(nullptr, [&]() -> Status {
    if (!gate || !text) return missing(gate ? "text" : "gate");
    const std::vector<std::string>& labels = gate->gate->labels();
    if (index >= labels.size()) return Status(StatusCode::kNotFound, "no such label");
    *text = labels[index].c_str();
    if (size) *size = labels[index].size();
    return {};
  });
}

kaiju_status kaiju_gate_score(const kaiju_gate* gate, const char* text, size_t size,
                              float* probabilities, size_t capacity, size_t* count) {
  return guard(nullptr, [&]() -> Status {
    if (!gate) return missing("gate");
    KAIJU_TRY(check_span("text", text, size));
    KAIJU_TRY(check_span("probabilities", probabilities, capacity));
    if (capacity > 0) gate->gate->score({size ? text : "", size}, {probabilities, capacity});
    if (count) *count = gate->gate->labels().size();
    return {};
  });
}
