#pragma once

#include "common/measure.hpp"
#include <rowlock/client.hpp>

#include <memory>
#include <string>

namespace bench {

/// Takes and gives back the lease of that name with each turn, and waits for both.
[[nodiscard]] std::unique_ptr<worker> our_lease(std::shared_ptr<rowlock::client> locks,
                                                const std::string& name);
/// Leaves giving back to the destructor, as client_options::releasing says.
[[nodiscard]] std::unique_ptr<worker> our_scoped_lease(std::shared_ptr<rowlock::client> locks,
                                                       const std::string& name);

}  // namespace bench
