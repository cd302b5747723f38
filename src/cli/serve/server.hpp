#pragma once

#include "cli/commands.hpp"
#include "cli/json.hpp"
#include "cli/serve/access.hpp"
#include "cli/serve/http_server.hpp"
#include "cli/serve/live_overview.hpp"
#include "cli/serve/overview_connection.hpp"
#include "cli/serve/shared_reading.hpp"
#include "cli/serve/stream_places.hpp"

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <semaphore>
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
    /// Whether it still accepts connections.
    [[nodiscard]] bool is_running() const { return !ended_; }

private:
    using request = httplib::Request;
    using response = httplib::Response;

    void limit();
    void add_page();
    void add_data();
    void add_break();
    [[nodiscard]] std::optional<refusal> refuses(const request& asked) const;
    template <typename Action>
    httplib::Server::Handler one_of_some(Action action);
    void answer_lock(const request& asked, response& to);
    void answer_history(const request& asked, response& to) const;
    void answer_events(response& to);
    struct blockers_seen {
        std::chrono::steady_clock::time_point at;
        json all;
    };
    [[nodiscard]] bool asks_for_rows() const;
    [[nodiscard]] blockers_seen read_blockers(const std::string& name) const;

    const database& in_;
    const serve_options& options_;
    const access who_;
    live_overview live_;
    overview_connection sessions_db_;
    shared_reading<view::sessions_seen> sessions_;
    shared_reading<std::string> metrics_;
    shared_reading<blockers_seen> blockers_;  ///< by the lock's name
    std::counting_semaphore<> readers_;       ///< requests that may wait for the database
    stream_places places_;
    http_server http_;
    int port_ = 0;
    std::atomic<bool> ended_{false};
    std::jthread thread_;
};

}  // namespace rowlock::cli::serving
