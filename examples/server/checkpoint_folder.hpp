// A folder with files that the server may change to while it serves: checkpoints (--checkpoints), heads (--heads) or
// sets of scales (--scales). In those of checkpoints and scales, the file current.json says which one is used after a
// restart.
#pragma once

#include <string>
#include <vector>

namespace kaiju::server {

inline constexpr const char* kModel = "model";  // the one of the command line, in each folder

// "model" first, then the folder's files by name, without their ending; an empty folder's name: "model" alone.
std::vector<std::string> names_in(const std::string& folder);
// Throws Failure where names_in lacks the name; so no name leads out of the folder. `kind`: what it names, "head".
void check_name(const std::string& folder, const std::string& name, const char* kind);
// The file of a name that names_in has.
std::string file_in(const std::string& folder, const std::string& name);

// What current.json says; "model" where there is no such file. Throws std::runtime_error where it cannot be read.
std::string read_current(const std::string& folder);
// Replaces current.json as a whole: after a crash it is the old one or the new one. Waits for the disk. Throws Failure.
void write_current(const std::string& folder, const std::string& name);

}  // namespace kaiju::server
