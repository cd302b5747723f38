#pragma once

#include <chrono>
#include <string>

/// Options of the stress tests that run for a time: --seconds=N --seed=N.
namespace stress {

struct run_length {
    std::chrono::seconds time{4};
    unsigned seed = 1;

    void read(const std::string& word) {
        if (word.starts_with("--seconds=")) time = std::chrono::seconds{std::stoi(word.substr(10))};
        if (word.starts_with("--seed=")) seed = static_cast<unsigned>(std::stoul(word.substr(7)));
    }
};

}  // namespace stress
