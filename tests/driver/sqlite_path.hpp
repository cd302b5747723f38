#pragma once

#include <string>

namespace contract {

/// A path for a database file in a private folder of this process, removed when the process ends.
[[nodiscard]] std::string sqlite_path(const std::string& name);

}  // namespace contract
