#pragma once

#include "support/server_process.hpp"

#include <chrono>
#include <memory>
#include <string>

namespace support {

/// HAProxy in TCP mode before one server, or a second one that it switches to once the first is
/// down.
class haproxy {
public:
    /// Null if HAProxy is missing: the case then counts as skipped, or fails.
    /// @param url the server's, over TCP  @param backup the second server's; empty if there is none
    /// @param idle the time after which it cuts an idle connection
    [[nodiscard]] static std::unique_ptr<haproxy> start(const std::string& url,
                                                        std::chrono::milliseconds idle,
                                                        const std::string& backup = {});

    /// The URL of the first server's database and user, through the proxy.
    [[nodiscard]] const std::string& url() const noexcept { return url_; }

private:
    haproxy() = default;

    server_folder folder_;
    std::unique_ptr<server_process> process_;
    std::string url_;
};

}  // namespace support
