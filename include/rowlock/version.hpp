#pragma once

/// The one source of the version: CMake reads these three lines.
#define ROWLOCK_VERSION_MAJOR 0
#define ROWLOCK_VERSION_MINOR 1
#define ROWLOCK_VERSION_PATCH 0

namespace rowlock {

/// @addtogroup options
/// @{

/// "major.minor.patch". The ABI is stable within a minor version before 1.0.
inline constexpr const char* version_string = "0.1.0";

/// @}

}  // namespace rowlock
