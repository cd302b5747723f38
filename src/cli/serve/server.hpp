#pragma once

#include "cli/commands.hpp"
#include "cli/serve/access.hpp"
#include "cli/serve/live_overview.hpp"

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>

namespace rowlock::cli::serving {

/// Answers requests on threads of its own, until it is destroyed.
class server {
public:
    /// Listens.
    /// @throws failure if it cannot
    server(const database& in, const serve_options& options, const listen_address& at, access who);
    server(const server&) = delete;
    server& operator=(const server&) = delete;
    ~server();

    [[nodiscard]] int port() const noexcept { return port_; }

private:
    using request = httplib::Request;
    using response = httplib::Response;

    void limit();
    void add_page();
    void add_data();
    void add_break();
    [[nodiscard]] std::optional<refusal> refuses(const request& asked) const;
    void answer_metrics(response& to);
    void answer_lock(const request& asked, response& to);
    void answer_history(const request& asked, response& to) const;
    void answer_events(response& to);

    const database& in_;
    const serve_options& options_;
    const access who_;
    live_overview live_;
    std::atomic<int> feeds_{0};
    std::mutex metrics_lock_;
    std::string metrics_{};
    std::chrono::steady_clock::time_point metrics_at_{};
    httplib::Server http_;
    int port_ = 0;
    std::jthread thread_;
};

}  // namespace rowlock::cli::serving
