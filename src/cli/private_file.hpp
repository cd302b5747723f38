#pragma once

#include <string>
#include <vector>

namespace rowlock::cli {

/// A file that may hold a secret, and what says which file that is.
struct named_file {
    std::string path;
    std::string named;  ///< "ROWLOCK_URL_FILE names"
};

enum class lines_wanted : bool { first, all };

/// Its lines, without white space at their ends; at least one. Reads no further than is wanted.
/// @throws failure `misconfigured`: it cannot be read; others than its owner may read it; it
/// belongs to another user than this one or root
[[nodiscard]] std::vector<std::string> read_private_lines(const named_file& what,
                                                          lines_wanted wanted);

}  // namespace rowlock::cli
