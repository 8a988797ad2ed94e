// The kernels as a program, for processors that this machine has only in an emulator: reads calls from stdin, each five integers and
// its arrays, and writes what the kernels return to stdout, all of it raw. With an argument: the instruction set that it was built for,
// and those of the arguments that the processor has.
#include <cstdio>
#include <cstdlib>

#include "kernels.cpp"

extern "C" int glass_has(const char*);

namespace {

enum Kind { PRODUCTS, QUANTIZED, NORM, ACTIVATIONS, EXPONENTIALS, HALVES, ATTENTION };

template <typename T>
std::vector<T> read(int rows, int columns = 1) {
    std::vector<T> made(offset(rows, columns));
    if (std::fread(made.data(), sizeof(T), made.size(), stdin) != made.size()) std::abort();
    return made;
}

template <typename T>
void write(const std::vector<T>& values) {
    std::fwrite(values.data(), sizeof(T), values.size(), stdout);
}

void products(int panels, int columns, int count, int parts) {  // parts: 1 if there are multipliers, plus 2 if there is a bias
    const bool four = parts & 1, biased = parts & 2;
    const auto weights = read<std::int8_t>(panels * LANES, columns / (four ? 2 : 1));
    const auto multipliers = read<std::int8_t>(four ? panels * LANES : 0, groups_of(columns));
    const auto scales = read<float>(panels * LANES), bias = read<float>(biased ? panels * LANES : 0), rows = read<float>(count, columns);
    const GlassMatrix matrix{weights.data(), four ? multipliers.data() : nullptr, scales.data(), biased ? bias.data() : nullptr,
                             panels, columns};
    std::vector<float> out(offset(count, panels * LANES));
    glass_multiply(&matrix, rows.data(), count, out.data());
    write(out);
}

void call(int kind, int a, int b, int c, int d) {
    if (kind == PRODUCTS) return products(a, b, c, d);
    if (kind == ATTENTION) {
        const auto queries = read<float>(c, a), keys = read<float>(b, a), values = read<float>(b, a);
        std::vector<float> out(offset(c, padded(a)));
        glass_attend(a, b, c, d, queries.data(), keys.data(), values.data(), out.data());
        return write(out);
    }
    const auto from = read<float>(padded(a));
    std::vector<float> out(from.size());
    if (kind == QUANTIZED) {
        std::vector<std::int8_t> numbers(from.size());
        write(std::vector<float>{glass_quantize(from.data(), a, numbers.data())});
        return write(numbers);
    }
    if (kind == NORM) {
        const auto gain = read<float>(padded(a)), bias = read<float>(padded(a));
        const GlassNorm norm{gain.data(), bias.data()};
        glass_normalize(from.data(), a, &norm, 1e-5f, out.data());
    }
    if (kind == ACTIVATIONS) glass_activate(from.data(), a, b, out.data());
    if (kind == EXPONENTIALS) glass_exponential(from.data(), a, out.data());
    if (kind == HALVES) {
        std::vector<Half> halves(from.size());
        glass_halve(from.data(), a, halves.data(), out.data());
        write(halves);
    }
    write(out);
}

}  // namespace

int main(int count, char** arguments) {
    if (count > 1) {
        std::printf("%s:", WAY);
        for (int n = 1; n < count; n++)
            if (glass_has(arguments[n])) std::printf(" %s", arguments[n]);
        std::printf("\n");
        return 0;
    }
    std::int32_t head[5];
    while (std::fread(head, sizeof head, 1, stdin) == 1) call(head[0], head[1], head[2], head[3], head[4]);
}
