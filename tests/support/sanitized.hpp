#pragma once

/// The overhead of a sanitizer. ThreadSanitizer runs its own thread and slows the program down;
/// AddressSanitizer less so.
namespace support {

#if defined(__SANITIZE_THREAD__)
inline constexpr int threads_of_the_sanitizer = 1;
inline constexpr int slowed = 10;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int threads_of_the_sanitizer = 0;
inline constexpr int slowed = 3;
#else
inline constexpr int threads_of_the_sanitizer = 0;
inline constexpr int slowed = 1;
#endif

}  // namespace support
