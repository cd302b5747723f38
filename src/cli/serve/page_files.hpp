#pragma once

#include "base/embedded.hpp"

#include <span>

namespace rowlock::embedded {

std::span<const file> page_files() noexcept;  ///< src/cli/serve/page

}  // namespace rowlock::embedded
