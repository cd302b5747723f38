#pragma once

namespace rowlock::cli {

/// Overwrites database URLs in the arguments and the environment that this process was started
/// with, which `ps` and /proc show as long as it lives. getenv() still finds ROWLOCK_URL. To be
/// called before the first thread.
/// @throws failure
void hide_urls(int argc, char** argv);

/// From now on no other process of this user can read the memory of this one, or of those that it
/// forks, or trace it, or take its descriptors. Exec ends that for the new program. There will be
/// no core dump.
void hide_memory() noexcept;

}  // namespace rowlock::cli
