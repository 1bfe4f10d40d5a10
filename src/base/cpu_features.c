/* cpu_features.c - asks the processor and the system.  Any thread; keeps nothing. */
#define _GNU_SOURCE 1   /* sched_getaffinity */
#include "base/cpu_features.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#if defined(__x86_64__)

static uint64_t xgetbv0(void) {
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static void ask_processor(struct calla_cpu_features *f) {
    /* Bits of xcr0: the system saves these registers. */
    const uint64_t ymm = 0x6, zmm = 0xe6, tiles = 0x60000;
    unsigned a, b, c, d;
    unsigned name[12] = { 0 };

    if (__get_cpuid(0x80000000u, &a, &b, &c, &d) && a >= 0x80000004u) {
        for (unsigned i = 0; i < 3; i++)
            __get_cpuid(0x80000002u + i, &name[4 * i], &name[4 * i + 1], &name[4 * i + 2], &name[4 * i + 3]);
        memcpy(f->model, name, sizeof name);
    }
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return;
    const unsigned leaf1_c = c;
    const uint64_t xcr0 = xgetbv0();
    if ((xcr0 & ymm) != ymm) return;
    f->fma = leaf1_c & bit_FMA;
    f->f16c = leaf1_c & bit_F16C;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    f->avx2 = (leaf1_c & bit_AVX) && (b & bit_AVX2) && (b & bit_BMI2);
    if ((xcr0 & zmm) == zmm) {
        const unsigned need = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
        f->avx512 = (b & need) == need;
        f->avx512vnni = f->avx512 && (c & bit_AVX512VNNI);
    }
    if ((xcr0 & tiles) == tiles) {
        f->amx_bf16 = d & (1u << 22);
        f->amx_int8 = d & (1u << 25);
    }
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) f->avx512bf16 = f->avx512 && (a & (1u << 5));
}

#elif defined(__aarch64__) && defined(__linux__)

static void ask_processor(struct calla_cpu_features *f) {
    const unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
    f->neon = cap & (1ul << 1);       /* HWCAP_ASIMD   */
    f->dotprod = cap & (1ul << 20);   /* HWCAP_ASIMDDP */
    f->i8mm = cap2 & (1ul << 13);     /* HWCAP2_I8MM   */
}

#elif defined(__aarch64__) && defined(__APPLE__)

static bool flag(const char *name) {
    int v = 0;
    size_t n = sizeof v;
    return sysctlbyname(name, &v, &n, NULL, 0) == 0 && v != 0;
}

static void ask_processor(struct calla_cpu_features *f) {
    f->neon = true;
    f->dotprod = flag("hw.optional.arm.FEAT_DotProd");
    f->i8mm = flag("hw.optional.arm.FEAT_I8MM");
}

#else

static void ask_processor(struct calla_cpu_features *f) { (void)f; }

#endif

#if defined(__linux__)

/* The lowest number among the threads of cpu's core, or cpu itself. */
static int first_sibling(int cpu) {
    char path[96];
    int first = cpu;

    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "r");
    if (!file) return cpu;
    if (fscanf(file, "%d", &first) != 1 || first < 0 || first > cpu) first = cpu;
    fclose(file);
    return first;
}

/* Processors that the container's quota grants, rounded up; 0: no quota. */
static int quota_cores(void) {
    long long quota, period;
    int n = 0;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r");

    if (!file) return 0;
    if (fscanf(file, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0)
        n = (int)((quota + period - 1) / period);
    fclose(file);
    return n;
}

static int count_cores(void) {
    cpu_set_t may, seen;
    int n = 0;

    if (sched_getaffinity(0, sizeof may, &may) != 0) {   /* more than 1024 processors */
        const long online = sysconf(_SC_NPROCESSORS_ONLN);
        return online > 0 ? (int)online : 1;
    }
    CPU_ZERO(&seen);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &may)) continue;
        const int core = first_sibling(cpu);
        if (core < CPU_SETSIZE && !CPU_ISSET(core, &seen)) { CPU_SET(core, &seen); n++; }
    }
    const int quota = quota_cores();
    if (quota > 0 && quota < n) n = quota;
    return n > 0 ? n : 1;
}

#elif defined(__APPLE__)

static int count_cores(void) {
    int v = 0;
    size_t n = sizeof v;
    /* Performance cores only: the slow ones would hold up every barrier. */
    if (sysctlbyname("hw.perflevel0.physicalcpu", &v, &n, NULL, 0) == 0 && v > 0) return v;
    n = sizeof v;
    return sysctlbyname("hw.physicalcpu", &v, &n, NULL, 0) == 0 && v > 0 ? v : 1;
}

#else

static int count_cores(void) {
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

#endif

/* Where the processor does not say its name: "model name" of /proc/cpuinfo, or Apple's brand string. */
static void ask_name(struct calla_cpu_features *f) {
    if (f->model[0]) return;
#if defined(__APPLE__)
    size_t n = sizeof f->model;
    if (sysctlbyname("machdep.cpu.brand_string", f->model, &n, NULL, 0) == 0) return;
#else
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && !f->model[0] && fgets(line, sizeof line, file))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':'))
            snprintf(f->model, sizeof f->model, "%.60s", strchr(line, ':') + 2);
    if (file) fclose(file);
    f->model[strcspn(f->model, "\n")] = 0;
#endif
    if (!f->model[0]) snprintf(f->model, sizeof f->model, "unknown");
}

void calla_cpu_features(struct calla_cpu_features *out) {
    *out = (struct calla_cpu_features){ 0 };
    ask_processor(out);
    ask_name(out);
    out->n_cores = count_cores();
}

void calla_cpu_features_text(const struct calla_cpu_features *f, char *out, size_t cap) {
    const struct { bool has; const char *name; } all[] = {
        { f->avx2, "avx2" }, { f->fma, "fma" }, { f->f16c, "f16c" }, { f->avx512, "avx512" },
        { f->avx512vnni, "avx512-vnni" }, { f->avx512bf16, "avx512-bf16" }, { f->amx_int8, "amx-int8" },
        { f->amx_bf16, "amx-bf16" }, { f->neon, "neon" }, { f->dotprod, "dotprod" }, { f->i8mm, "i8mm" },
    };
    size_t n = 0;

    if (cap == 0) return;
    out[0] = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i].has || n >= cap) continue;
        const int k = snprintf(out + n, cap - n, "%s%s", n ? " " : "", all[i].name);
        n += k > 0 ? (size_t)k : 0;
    }
}
