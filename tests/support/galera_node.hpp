#pragma once

#include "support/mariadb_home.hpp"
#include "support/server_process.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace support {

/// A Galera cluster of one node, MariaDB's own provider in it: what a client sees of a cluster, and
/// what one node does by itself. On free ports of 127.0.0.1. Takes a few seconds: start one for a
/// whole test program.
class galera_node {
public:
    /// Null if mariadbd or the provider is missing: the case then counts as skipped, or fails.
    [[nodiscard]] static std::unique_ptr<galera_node> start();

    /// mysql://…, a user with all rights, and a database.
    [[nodiscard]] const std::string& url() const noexcept { return url_; }

private:
    galera_node() = default;

    std::unique_ptr<mariadb_home> home_;
    std::unique_ptr<server_process> process_;
    std::string url_;
};

/// Several nodes of one cluster on this machine. Their data is copied from the first, so that no
/// node needs another's to be sent to it. Takes ten seconds or so.
class galera_cluster {
public:
    /// Null as galera_node::start().
    [[nodiscard]] static std::unique_ptr<galera_cluster> start(int nodes);

    [[nodiscard]] int size() const noexcept { return static_cast<int>(nodes_.size()); }
    /// Of one node; all have the same user.
    [[nodiscard]] const std::string& url(int node) const;
    /// Of all, this one first.
    [[nodiscard]] std::string url_from(int node) const;
    /// Cuts a node off from the others, which find out within seconds; it answers its clients, and
    /// refuses their statements.
    void isolate(int node);
    /// Waits until it has come back to the others.
    void rejoin(int node);

private:
    struct member {
        std::unique_ptr<server_folder> folder;
        std::uint16_t port = 0;
        std::string url;
        std::unique_ptr<server_process> process;
    };

    galera_cluster() = default;
    [[nodiscard]] bool run(bool first);
    [[nodiscard]] std::string status(int node, const std::string& variable) const;

    std::unique_ptr<mariadb_home> home_;
    std::vector<member> nodes_;
};

}  // namespace support
