#pragma once

#include <string>
#include <string_view>

namespace rowlock::cli {

/// @throws failure unless the path names a regular file, or nothing yet: another file, such as a
/// device, is not to be replaced
void require_replaceable(const std::string& path);

/// Replaces the file as a whole, with mode 0644: a reader sees the old content or the new one, and
/// after a failure the old one. Writes a temporary file in the same folder, and renames it when it
/// is on the disk.
/// @throws failure
void replace_file(const std::string& path, std::string_view content);

}  // namespace rowlock::cli
