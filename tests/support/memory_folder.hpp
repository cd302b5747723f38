#pragma once

#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace support {

/// Whether files may be in memory: there is a file system for it, with room.
[[nodiscard]] inline bool has_memory() {
    constexpr std::uint64_t enough = std::uint64_t{4} << 30U;
    struct statvfs memory {};
    const bool there = statvfs("/dev/shm", &memory) == 0 && access("/dev/shm", W_OK) == 0;
    return there && memory.f_bavail * memory.f_frsize >= enough;
}

/// Where a test's databases are: in memory where there is room, which saves them the wait for the
/// disk with each commit, or in the folder for temporary files.
[[nodiscard]] inline std::string memory_folder() {
    return has_memory() ? "/dev/shm" : std::filesystem::temp_directory_path().string();
}

}  // namespace support
