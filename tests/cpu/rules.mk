TEST_PROGRAMS += $O/tests/cpu/cpu

# malloc and its kin are wrapped: a test counts them during steps.
$O/tests/cpu/cpu: $(patsubst %.c,$O/%.o,$(wildcard tests/cpu/*.c)) $O/tests/golden/fixture.o $O/libcalla.a
	$(CC) $(SAN) $(LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc -o $@ $^ $(LIBS) $(shell pkg-config --libs cmocka)

-include $(wildcard $O/tests/cpu/*.d)
