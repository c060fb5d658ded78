// Files that are compiled into the program (CMakeLists.txt).
#pragma once

#include <string_view>

namespace kaiju::server {

extern const std::string_view kOpenApi;  // openapi.json
extern const std::string_view kPage;     // web/index.html

}  // namespace kaiju::server
