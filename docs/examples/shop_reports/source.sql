-- A small shop: 40 customers, and three orders a day for the last 60 days.
create table customer (
    id int primary key,
    name text not null,
    updated_at timestamptz not null default now()
);
create table orders (
    id int primary key,
    customer_id int not null references customer,
    ordered_on date not null,
    cents bigint not null
);
create index on orders (ordered_on);
create index on customer (updated_at);

insert into customer (id, name) select i, 'customer ' || i from generate_series(1, 40) i;
insert into orders
select day * 3 + i, 1 + (day * 3 + i) % 30, current_date - day, 100 * (day + i + 1)
from generate_series(0, 59) day, generate_series(0, 2) i;
