#pragma once

#include "stress/run_length.hpp"
#include "support/lock_database.hpp"

#include <set>
#include <string>
#include <vector>

/// Options of shared_stress_test, for its files.
namespace stress {

struct choice : run_length {
    std::set<std::string> databases{};  ///< empty: all
    bool restarts = false;
    int terms = 3;

    void read(const std::string& word) {
        run_length::read(word);
        if (word.starts_with("--database=")) databases.insert(word.substr(11));
        if (word.starts_with("--terms=")) terms = std::stoi(word.substr(8));
        if (word == "--restarts") restarts = true;
    }
    [[nodiscard]] std::vector<support::backend> backends() const {
        std::vector<support::backend> all{ROWLOCK_NATIVE_BACKENDS};
        if (databases.empty()) return all;
        std::erase_if(all,
                      [&](auto each) { return !databases.contains(support::to_string(each)); });
        return all;
    }
};

/// Of this run.
[[nodiscard]] choice& chosen();

}  // namespace stress
