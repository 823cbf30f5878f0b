#!/usr/bin/env python3
"""Makes the sample records of the examples: made-up people, the same ones every time. Run it in this folder."""
import csv, json, random

def weighted(r, values):
    return values[min(r.randrange(len(values)), r.randrange(len(values)))]

def day(r, first, last):
    return f"{r.randrange(first, last)}-{r.randrange(1, 13):02}-{r.randrange(1, 29):02}"

def table(path, rows):
    with open(path, "w", newline="") as out:
        writer = csv.DictWriter(out, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)

def lines(path, rows):
    with open(path, "w") as out:
        out.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)

def orders(r):
    people = [(f"c{i:04}", f"{10 + r.randrange(3)}{r.randrange(1, 4)}{r.randrange(10)}{r.randrange(10)}", r.randrange(18, 80),
               weighted(r, ["DE", "AT", "CH"])) for i in range(350)]
    for i in range(600):
        who, zipcode, age, country = r.choice(people)
        yield {"order_id": f"o{i:05}", "customer_id": who, "email": f"{who}@mail.example", "zip": zipcode, "country": country, "age": age,
               "ordered_at": day(r, 2024, 2025), "category": weighted(r, ["books", "shoes", "games", "garden"]), "quantity": r.randrange(1, 5)}

def health(r):
    for i in range(500):
        yield {"patient_id": f"p{i:04}", "name": f"Name{i} Surname{i}", "born": day(r, 1935, 2005), "sex": weighted(r, ["f", "m"]),
               "zip": f"{r.choice(['04', '10', '20', '80'])}{r.randrange(3)}{r.randrange(10)}{r.randrange(10)}", "admitted": day(r, 2024, 2025),
               "diagnosis": weighted(r, ["I10", "E11", "J45", "F32", "K21", "M54"])}

def clicks(r):
    visitors = [(f"{r.randrange(1 << 32):08x}", f"{r.choice([81, 93, 185])}.{r.randrange(4)}.{r.randrange(256)}.{r.randrange(1, 255)}",
                 weighted(r, ["Chrome", "Safari", "Firefox", "Edge"]), weighted(r, ["Windows", "Android", "iOS", "Linux"]))
                for _ in range(300)]
    for _ in range(800):
        who, address, browser, system = r.choice(visitors)
        yield {"visitor_id": who, "ip": address, "browser": browser, "os": system, "at": day(r, 2024, 2025) + f"T{r.randrange(24):02}:{r.randrange(60):02}:00Z",
               "page": weighted(r, ["home", "search", "cart", "checkout"]), "seconds": r.randrange(1, 30)}

def hr(r):
    for i in range(400):
        grade = weighted(r, ["junior", "senior", "lead", "director"])
        pay = {"junior": 38, "senior": 52, "lead": 68, "director": 95}[grade]
        yield {"employee_id": f"e{i:04}", "name": f"Name{i} Surname{i}", "born": day(r, 1962, 2003), "gender": weighted(r, ["m", "f", "x"]),
               "department": weighted(r, ["sales", "production", "research", "finance", "people"]), "grade": grade,
               "hired": day(r, 2005, 2024), "salary_band": f"{pay + r.randrange(4) * 4}k"}

def telco(r):
    people = [(f"+49170{i:07}", f"2620{r.randrange(2)}{r.randrange(1, 5)}{r.randrange(10)}{r.randrange(10)}", weighted(r, ["prepaid", "flat", "family"]),
               r.randrange(1950, 2006)) for i in range(400)]
    for _ in range(900):
        who, cell, tariff, born = r.choice(people)
        yield {"msisdn": who, "imei": str(r.randrange(10**14, 10**15)), "cell": cell, "tariff": tariff, "birth_year": born, "day": day(r, 2024, 2025),
               "service": weighted(r, ["data", "voice", "sms"]), "minutes": r.randrange(1, 20)}

def customers(r):
    for i in range(400):
        row = {"id": i, "contact": {"email": f"c{i}@mail.example"}, "birth_date": day(r, 1940, 2005), "gender": weighted(r, ["f", "m"]),
               "address": {"city": weighted(r, ["Berlin", "Hamburg", "Munich", "Leipzig"]), "zip": f"{r.choice([10, 20, 80])}{r.randrange(4)}{r.randrange(10)}{r.randrange(10)}"},
               "segment": weighted(r, ["basic", "plus", "premium"])}
        yield {"before": None, "after": row, "op": weighted(r, ["c", "u", "r"]), "ts_ms": 1700000000000 + i}

for name, make, write, end in [("orders", orders, table, "csv"), ("health", health, lines, "jsonl"), ("clicks", clicks, lines, "jsonl"),
                               ("hr", hr, table, "csv"), ("telco", telco, lines, "jsonl"), ("customers", customers, lines, "jsonl")]:
    write(f"{name}/{name}.{end}", list(make(random.Random(name))))
