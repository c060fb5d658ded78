// Loads a model when one is named; says what is wrong otherwise.
#include <cstdio>
#include <kaiju/kaiju.hpp>

int main(int argc, char** argv) {
  auto model = kaiju::Model::load(argc > 1 ? argv[1] : "/nowhere/model.safetensors");
  std::printf("%s\n", model.ok() ? "loaded" : model.status().message().c_str());
  return model.ok() == (argc > 1) ? 0 : 1;
}
